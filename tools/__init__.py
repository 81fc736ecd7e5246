"""What keeps the project in order, and tries it out on others' code."""
