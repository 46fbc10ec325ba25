"""What safety costs, as ratios measured in one run on one server. ``make bench`` prints the table."""
