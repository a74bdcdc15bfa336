-- A large transaction: every order at once.
UPDATE orders SET amount = amount + 0.01;
