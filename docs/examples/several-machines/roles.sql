-- Run once by an administrator, in the database of the store. The store will lie in the schema "streams".

CREATE ROLE streams_owner LOGIN; -- creates and migrates the tables
CREATE ROLE streams_user LOGIN;  -- uses them: workers, endpoints, programs
CREATE ROLE streams_app NOLOGIN; -- the rights of SQL in handlers: reads the store, owns the tables of the app

GRANT streams_app TO streams_owner, streams_user;
GRANT pg_read_all_stats TO streams_user; -- for `eventproc doctor`: connections of the owner

CREATE SCHEMA streams AUTHORIZATION streams_owner;
CREATE SCHEMA streams_app AUTHORIZATION streams_app;

GRANT USAGE ON SCHEMA streams TO streams_user, streams_app;
ALTER DEFAULT PRIVILEGES FOR ROLE streams_owner IN SCHEMA streams
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO streams_user;
ALTER DEFAULT PRIVILEGES FOR ROLE streams_owner IN SCHEMA streams
    GRANT SELECT ON TABLES TO streams_app;
