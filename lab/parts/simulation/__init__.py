"""What `bench simulate` asks of `lab.simulation`: cells, contests between policies, checks."""
