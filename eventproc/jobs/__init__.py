"""Jobs: the events of a share group, each handled by a worker of an app, in any process, until it is done."""
