delete from aiflow.rate_limit where name = %(name)s returning name
