"""Hostile requests, made from the API's own description, and what they do to a running lead."""
