"""What a finding of an audit means, and what to do about it."""
