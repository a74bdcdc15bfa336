-- Beside pgbench's own tables: types that JSON writers get wrong, large transactions, deletes.
CREATE TABLE orders (
  id bigint PRIMARY KEY,
  note text,
  amount numeric(12, 2) NOT NULL,
  tags jsonb NOT NULL DEFAULT '{}',
  raw bytea,
  paid boolean,
  changed timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE SCHEMA "ça.va";
CREATE TABLE "ça.va"."Journal/1" (id bigserial PRIMARY KEY, line text NOT NULL);
-- The whole old row in the log, so that a deleted version can be compared as well.
ALTER TABLE orders REPLICA IDENTITY FULL;
ALTER TABLE pgbench_accounts REPLICA IDENTITY FULL;
ALTER TABLE pgbench_tellers REPLICA IDENTITY FULL;
ALTER TABLE pgbench_branches REPLICA IDENTITY FULL;
