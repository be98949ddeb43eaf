"""Knows how addresses are written and where a role listens; does not know who meets there."""

import os
import re
import secrets
import socket

from psboost.errors import ClusterError, ParameterError
from psboost.wire.endpoint import local_host_towards

_MOST_PORT = 65_535
_TCP = re.compile(r"(\[[^\[\]]+\]|[^\[\]:/]+):(\d{1,5}|\*)")


def normal_address(text: str) -> str:
    """HOST:PORT, [IPV6]:PORT or a whole tcp:// or ipc:// address, as a whole address."""
    scheme, _, place = text.rpartition("://")
    if scheme == "ipc" and place:
        return text if place.startswith("@") else f"ipc://{os.path.abspath(place)}"  # peers may be in other folders
    port = place.rpartition(":")[2]
    if scheme not in ("", "tcp") or not _TCP.fullmatch(place) or (port != "*" and int(port) > _MOST_PORT):
        raise ParameterError(f"address {text!r}: write it as HOST:PORT, [IPV6]:PORT or ipc://PATH")
    return f"tcp://{place}"


def rendezvous_address(text: str) -> str:
    """normal_address of where somebody else listens: at a port that is known."""
    address = normal_address(text)
    if re.fullmatch("tcp://.*:(0+|[*])", address):
        raise ParameterError(f"rendezvous {text!r}: give the port that the coordinator listens at, which it prints")
    return address


def bindable(address: str) -> str:
    """`address` with a host name replaced by its number: sockets listen at numbers only."""
    scheme, _, place = address.partition("://")
    host, _, port = place.rpartition(":")
    if scheme != "tcp" or host == "*" or host.startswith("["):
        return address
    try:
        number = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]
    except OSError as error:
        raise ClusterError(f"cannot listen at {address}: host {host!r}: {error}; give a number or * instead") from error
    return f"tcp://{_bracketed(number)}:{port}"


def address_facing(rendezvous: str) -> str:
    """Where a member listens unless told: beside an ipc:// rendezvous, or at any port that faces a tcp:// one."""
    scheme, _, place = rendezvous.partition("://")
    if scheme == "ipc":
        return f"{rendezvous}.{secrets.token_hex(4)}"
    return f"tcp://{_bracketed(local_host_towards(place.rpartition(':')[0]))}:0"


def announced(address: str, host: str | None) -> str:
    """The address that peers are told: `address`, which is listened at, with `host` if that is given."""
    if host is not None:
        if not address.startswith("tcp://"):
            raise ParameterError(f"--announce {host}: {address} has no host: leave --announce out")
        return f"tcp://{_bracketed(host)}:{address.rpartition(':')[2]}"
    if address.startswith(("tcp://0.0.0.0:", "tcp://[::]:")):
        raise ParameterError(
            f"listening at {address}: say with --announce HOST which of this machine's names the others reach it by"
        )
    return address


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
