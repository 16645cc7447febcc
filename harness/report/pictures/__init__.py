"""Pictures of a report, as SVG."""
