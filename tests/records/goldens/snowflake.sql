WITH dpdist_records AS (
SELECT * FROM visits
),
dpdist_cells AS (
SELECT CASE WHEN CAST("age" AS DOUBLE) IS NULL OR CAST("age" AS DOUBLE) = 'NaN'::DOUBLE THEN NULL WHEN CAST("age" AS DOUBLE) < CAST('0.0' AS DOUBLE) THEN '-1.0' WHEN CAST("age" AS DOUBLE) < CAST('18.0' AS DOUBLE) THEN '0.0' WHEN CAST("age" AS DOUBLE) < CAST('65.0' AS DOUBLE) THEN '18.0' ELSE '65.0' END AS "age", CASE WHEN CAST("day" AS TIMESTAMP_NTZ) IS NULL THEN NULL WHEN CAST("day" AS TIMESTAMP_NTZ) < CAST('2026-01-01 00:00:00' AS TIMESTAMP_NTZ) THEN '2025-12-01 00:00:00' WHEN CAST("day" AS TIMESTAMP_NTZ) < CAST('2026-02-01 00:00:00' AS TIMESTAMP_NTZ) THEN '2026-01-01 00:00:00' WHEN CAST("day" AS TIMESTAMP_NTZ) < CAST('2026-03-01 00:00:00' AS TIMESTAMP_NTZ) THEN '2026-02-01 00:00:00' WHEN CAST("day" AS TIMESTAMP_NTZ) < CAST('2026-04-01 00:00:00' AS TIMESTAMP_NTZ) THEN '2026-03-01 00:00:00' ELSE '2026-04-01 00:00:00' END AS "day", CASE WHEN CAST("w`or""d" AS VARCHAR) IS NULL THEN NULL WHEN CAST("w`or""d" AS VARCHAR) = '' THEN NULL WHEN CAST("w`or""d" AS VARCHAR) IN ('f', 'it\'s', 'back\\slash', 'quoted "x"') THEN CAST("w`or""d" AS VARCHAR) ELSE '?' END AS "word", SHA2(NULLIF(CAST("card" AS VARCHAR), ''), 256) AS dpdist_person FROM dpdist_records
),
dpdist_keyed AS (
SELECT *, SHA2(CONCAT(COALESCE(dpdist_person, ''), '|', COALESCE("age", ''), '|', COALESCE("day", ''), '|', COALESCE("word", '')), 256) AS dpdist_key
FROM dpdist_cells
),
dpdist_ranked AS (
SELECT *, ROW_NUMBER() OVER (PARTITION BY dpdist_person, "age", "day", "word" ORDER BY dpdist_key) AS dpdist_record, DENSE_RANK() OVER (PARTITION BY dpdist_person ORDER BY dpdist_key, "age", "day", "word") AS dpdist_group FROM dpdist_keyed
)
SELECT "age", "day", "word", COUNT(*) AS dpdist_count FROM dpdist_ranked
WHERE (dpdist_person IS NULL OR dpdist_record <= 3 AND dpdist_group <= 2)
GROUP BY "age", "day", "word"
