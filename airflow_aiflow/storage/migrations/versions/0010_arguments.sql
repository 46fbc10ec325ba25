-- What is kept of a step's arguments for people: names, and the beginning of each. No replay reads it.

alter table aiflow.step add column arguments bytea;
