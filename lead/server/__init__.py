"""The server: start, end, takeover and the lead's own back."""
