"""The lab: a cluster that is not there, with a clock of its own (virtual), and one of network namespaces (namespaces).

    psboost.train(params, X, y, grid=(3, 3), servers=3, transport="virtual", cluster=psboost.lab.Cluster(hosts=12, gbit=1))

hosts, links, cores: what a cluster is made of. phases: what its hosts spend their time on. virtual: the driver that runs
roles on it. sockets: what sending takes on a real machine. Rooms above may use it; it uses cluster and those below.
"""

from psboost.lab.hosts import Cluster

__all__ = ["Cluster"]
