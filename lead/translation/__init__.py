"""Translation: what backs of another vocabulary need of the lead."""
