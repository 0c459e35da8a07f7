"""Before any rank starts: which addresses of the hosts of a job reach each other."""
