"""State machines that pass messages; know neither sockets, threads nor clocks."""
