"""`back service`."""
