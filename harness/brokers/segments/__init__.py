"""What brokers write to disk and serve over Fetch, parsed without a broker."""
