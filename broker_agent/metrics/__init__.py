"""What an agent tells of itself at a scrape: looks at the parts on the data loop, makes families elsewhere."""
