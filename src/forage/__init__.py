"""forage: crawl URLs that nobody vouches for, through a pinned egress guard, and cite what was kept."""
