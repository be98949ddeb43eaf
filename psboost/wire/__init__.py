"""Messages, their bytes, and the sockets that carry them; does not know trees or who answers what."""
