"""What a results folder holds: runs, nights and soaks."""
