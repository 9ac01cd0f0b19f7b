{# The table of what dbt-dpdist has published, in the target's schema: one row a release. Everything in it is public. #}
{% macro dpdist_releases() %}
    {{ return(api.Relation.create(database=target.database, schema=target.schema, identifier='dpdist_releases')) }}
{% endmacro %}

{# Write releases into it, each in place of its own row. dbt-dpdist runs this. #}
{% macro dpdist_record(releases) %}
    {% set columns = ['release', 'dataset', 'period', 'folder', 'rmse', 'epsilon', 'delta', 'verified'] %}
    {% set table = dpdist.dpdist_releases() %}
    {% call statement() %}
        create table if not exists {{ table }} (
            release varchar(255), dataset varchar(255), period date, folder varchar(4000),
            rmse double precision, epsilon double precision, delta double precision, verified boolean
        )
    {% endcall %}
    {% for each in releases %}
        {% call statement() %}
            delete from {{ table }} where release = {{ dbt.string_literal(dbt.escape_single_quotes(each['release'])) }}
        {% endcall %}
        {% call statement() %}
            insert into {{ table }} ({{ columns | join(', ') }}) values (
                {% for column in columns %}
                {% set value = each[column] %}
                {% if value is none %}null
                {% elif value is string %}{{ dbt.string_literal(dbt.escape_single_quotes(value)) }}
                {% else %}{{ value }}
                {% endif %}{{ ',' if not loop.last }}
                {% endfor %}
            )
        {% endcall %}
    {% endfor %}
    {% do run_query('commit') %}
{% endmacro %}

{# A test of a column of release ids: dbt-dpdist published each of them, and what its certificate claims was recomputed and is right. #}
{% test verified(model, column_name) %}
    select distinct answers.{{ column_name }}
    from {{ model }} as answers
    left join {{ dpdist.dpdist_releases() }} as releases on releases.release = answers.{{ column_name }}
    where releases.verified is null or not releases.verified
{% endtest %}
