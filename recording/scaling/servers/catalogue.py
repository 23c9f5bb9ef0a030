"""Every server that the scaling campaign can drive, by name. Adding one is one file and one entry here."""

from recording.scaling.servers.base import ScalableServer
from recording.scaling.servers.mysql import ScalableMySQL
from recording.scaling.servers.nginx import ScalableNginx
from recording.scaling.servers.redis import ScalableRedis
from recording.scaling.servers.search import ScalableSearch

SERVERS: dict[str, ScalableServer] = {
    "nginx": ScalableNginx(),
    "redis": ScalableRedis(),
    "mysql": ScalableMySQL(),
    "search": ScalableSearch(),
}
