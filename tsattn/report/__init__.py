"""The report page: one HTML file with the forecast, what it read, and whether to believe it."""
