"""The simulations of `bench simulate`, on top of `lab.simulation`: cells, comparisons of policies, checks."""
