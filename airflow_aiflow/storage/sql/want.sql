update aiflow.lease set wanted_by = %(newcomer)s
where execution_id = %(execution_id)s and fence = %(fence)s
returning true
