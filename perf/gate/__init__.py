"""The gate for changes that cost: by counters, by ratios of times inside one run, by two builds in turns."""
