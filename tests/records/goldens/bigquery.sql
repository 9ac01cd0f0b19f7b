WITH dpdist_records AS (
SELECT * FROM visits
),
dpdist_cells AS (
SELECT CASE WHEN CAST(`age` AS FLOAT64) IS NULL OR IS_NAN(CAST(`age` AS FLOAT64)) THEN NULL WHEN CAST(`age` AS FLOAT64) < CAST('0.0' AS FLOAT64) THEN '-1.0' WHEN CAST(`age` AS FLOAT64) < CAST('18.0' AS FLOAT64) THEN '0.0' WHEN CAST(`age` AS FLOAT64) < CAST('65.0' AS FLOAT64) THEN '18.0' ELSE '65.0' END AS `age`, CASE WHEN CAST(`day` AS DATETIME) IS NULL THEN NULL WHEN CAST(`day` AS DATETIME) < CAST('2026-01-01 00:00:00' AS DATETIME) THEN '2025-12-01 00:00:00' WHEN CAST(`day` AS DATETIME) < CAST('2026-02-01 00:00:00' AS DATETIME) THEN '2026-01-01 00:00:00' WHEN CAST(`day` AS DATETIME) < CAST('2026-03-01 00:00:00' AS DATETIME) THEN '2026-02-01 00:00:00' WHEN CAST(`day` AS DATETIME) < CAST('2026-04-01 00:00:00' AS DATETIME) THEN '2026-03-01 00:00:00' ELSE '2026-04-01 00:00:00' END AS `day`, CASE WHEN CAST(`w\`or"d` AS STRING) IS NULL THEN NULL WHEN CAST(`w\`or"d` AS STRING) = '' THEN NULL WHEN CAST(`w\`or"d` AS STRING) IN ('f', 'it\'s', 'back\\slash', 'quoted "x"') THEN CAST(`w\`or"d` AS STRING) ELSE '?' END AS `word`, TO_HEX(SHA256(NULLIF(CAST(`card` AS STRING), ''))) AS dpdist_person FROM dpdist_records
),
dpdist_keyed AS (
SELECT *, TO_HEX(SHA256(CONCAT(COALESCE(dpdist_person, ''), '|', COALESCE(`age`, ''), '|', COALESCE(`day`, ''), '|', COALESCE(`word`, '')))) AS dpdist_key
FROM dpdist_cells
),
dpdist_ranked AS (
SELECT *, ROW_NUMBER() OVER (PARTITION BY dpdist_person, `age`, `day`, `word` ORDER BY dpdist_key) AS dpdist_record, DENSE_RANK() OVER (PARTITION BY dpdist_person ORDER BY dpdist_key, `age`, `day`, `word`) AS dpdist_group FROM dpdist_keyed
)
SELECT `age`, `day`, `word`, COUNT(*) AS dpdist_count FROM dpdist_ranked
WHERE (dpdist_person IS NULL OR dpdist_record <= 3 AND dpdist_group <= 2)
GROUP BY `age`, `day`, `word`
