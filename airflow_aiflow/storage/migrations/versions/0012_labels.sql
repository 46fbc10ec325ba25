-- What an author says of a task, to find its runs by. A table of its own, so that nothing that is there is scanned or locked.

create table aiflow.label (                    -- of the last attempt that had some
    execution_id bigint not null,
    name text not null check (length(name) between 1 and 100),
    value text not null check (length(value) <= 100),
    primary key (execution_id, name)
);

create index label_found on aiflow.label (name, value, execution_id);
