"""Runs roles: local threads, processes, remote hosts; liveness. Does not know trees."""
