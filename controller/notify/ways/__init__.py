"""The ways outside: each takes one message and either has delivered it or says why not, and whether to try again."""
