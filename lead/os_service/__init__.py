"""The ring for `lead service`."""
