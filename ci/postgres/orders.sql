-- One transaction over several tables: insert or update, delete, and a row that is changed and changed back.
\set id random(1, 400)
\set cents random(1, 100000)
BEGIN;
INSERT INTO orders (id, note, amount, tags, raw, paid)
  VALUES (:id, E'né "quoted", tab\t, 数据 ' || :id, :cents / 100.0, jsonb_build_object('cents', :cents), '\x00ff', NULL)
  ON CONFLICT (id) DO UPDATE SET amount = EXCLUDED.amount, paid = NOT coalesce(orders.paid, false), changed = clock_timestamp();
DELETE FROM orders WHERE id = :id + 1;
UPDATE orders SET note = NULL WHERE id = :id;
UPDATE orders SET note = 'back' WHERE id = :id;
INSERT INTO "ça.va"."Journal/1" (line) VALUES ('order ' || :id);
END;
