"""What a user opens on the host: a session, and runs that are repeated until nothing is lost."""
