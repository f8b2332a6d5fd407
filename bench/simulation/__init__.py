"""What `bench simulate` asks of `lead.simulation`: cells, contests between policies, checks."""
