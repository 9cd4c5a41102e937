// Drives one guard of npm: a JSON line in for each fetch, a JSON line out. Run by benchmarks.guards inside a network namespace only.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import path from "node:path";

const [name, modules] = process.argv.slice(2);
const require = createRequire(path.join(modules, "package.json"));
const SECONDS = 8;
const signal = () => AbortSignal.timeout(SECONDS * 1000);

async function viaAxios(agentOf) {
  const axios = require("axios");
  return async ({ method, url, headers, body }) => {
    const agent = agentOf(url);
    const response = await axios.request({
      method, url, headers: Object.fromEntries(headers), data: body ?? undefined, httpAgent: agent, httpsAgent: agent, signal: signal(),
      validateStatus: () => true, responseType: "text",
    });
    return response.status;
  };
}

async function viaFetch(fetch) {
  return async ({ method, url, headers, body }) => {
    const response = await fetch(url, { method, headers, body: body ?? undefined, signal: signal() });
    await response.text();
    return response.status;
  };
}

const guards = {
  "node fetch": async () => viaFetch(globalThis.fetch),
  "request-filtering-agent": async () => viaAxios(require("request-filtering-agent").useAgent),
  "ssrf-req-filter": async () => viaAxios(require("ssrf-req-filter")),
  "@kontourai/forage": async () => {
    const { createGuardedFetch } = await import(path.join(modules, "node_modules/@kontourai/forage/dist/src/egress-index.js"));
    return viaFetch(createGuardedFetch());
  },
};

let fetch;
process.on("uncaughtException", () => {});
process.on("unhandledRejection", () => {});
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  let reply;
  if (request.op === "new") {
    fetch = await guards[name]();
    reply = { outcome: "new" };
  } else {
    try {
      reply = { outcome: "answer", status: await fetch(request) };
    } catch (error) {
      reply = { outcome: "error", error: error.code ?? error.name, text: String(error).slice(0, 200) };
    }
  }
  process.stdout.write(JSON.stringify(reply) + "\n");
}
