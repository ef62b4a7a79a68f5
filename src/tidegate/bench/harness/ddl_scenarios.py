"""DDL statements, each in a database of its own: what the servers make of them is compared with what we read.

A scenario is a list of statements; `use` names are left out, so that each begins in its own empty database. A statement
that one of the servers does not accept is left out there. Tables that a scenario needs are made by its first
statements.
"""

from __future__ import annotations

T = "CREATE TABLE t (id int primary key, v varchar(20) default 'x', w int, KEY k (w), UNIQUE KEY u (v, w))"
P = (
    "CREATE TABLE p (id int, d date) PARTITION BY RANGE (YEAR(d)) "
    "(PARTITION p0 VALUES LESS THAN (2020), PARTITION p1 VALUES LESS THAN (2030))"
)
TEXTS = (
    "CREATE TABLE t (a tinytext, b text, c mediumtext, d longtext, e varchar(100), f char(10), g enum('a','b'), "
    "h set('x','y'), i blob, j varbinary(9), k varchar(30) charset utf8mb4, l int, m varchar(7) charset binary)"
)

# One column of a table each.
COLUMNS = """
int(5) default '7' | int default 2.8 | int default -5 | int default + 5 | int default 0x41 | int default '5 ' | int default null
int unsigned zerofill | int(4) zerofill | bigint unsigned zerofill | bigint unsigned | tinyint(1) default true
tinyint(1) unsigned | tinyint(4) | smallint(6) | mediumint(9) unsigned | int(255) | int1 | int2 | int3 | int4 | int8 | middleint
integer | bool default false | boolean not null | bit | bit(8) default b'101' | bit(8) default 5 | bit(1) default true
bit(64) | decimal | decimal(5) default -.5 | decimal(12,2) default 0 | decimal(12,2) default '1.005' | decimal(0)
decimal(65,30) | dec | dec(5) unsigned | numeric(4) | fixed(5,2) zerofill | float default 1.123456789 | float(7,3) default 1.5
float(24) | float(30) | float unsigned default 123456789 | float default '1e-20' | double default 1e20 | double default 0.1
double precision | double(10,2) default 1 | double default -1.5e-3 | double default 123456789012345678 | real | float4 | float8
char | char(5) default 'a  ' | char(0) | char(255) | char binary | char(3) byte | char(3) unicode | char(3) ascii
char(3) character set binary | char(3) charset latin1 collate latin1_bin | nchar(4) | national char(3) | national varchar(4)
nchar varying(5) | nvarchar(6) | national character varying(4) | character varying(7) | char varying(3) | varcharacter(4)
varchar(20) default 'it''s' | varchar(20) default 'é\\\\n' | varchar(4) binary | varchar(3) charset utf8 collate utf8_bin
varchar(3) default n'q' | varchar(3) default _latin1'ab' | varchar(5) default 0x41 | varchar(20000) | varchar(16383)
varchar(70000) charset latin1 | varchar(70000) | varbinary(70000) | varchar(9) default 'a' 'b' | varchar(9) default ''
binary | binary(4) default 'ab' | varbinary(4) default x'4142' | varbinary(3) default 'a'
tinytext | text | mediumtext | longtext | text(20) | text(300) | text(70000) | text(20000000) | text charset latin1
text collate latin1_bin | text(255) charset latin1 | text(255) charset ascii | text binary | text charset binary
tinyblob | blob | mediumblob | longblob | blob(20) | blob(300) | blob(70000) | long | long varchar | long varbinary
long character set latin1 | enum('a','b') not null | enum('A','b') default 'a' | enum('a ', 'b' ) | enum('1','2','3') default '2'
enum('x') charset latin1 | enum('it''s','a,b','c)d') default 'a,b' | enum('日本','é') default 'é' | set('x','y','z') default 'z,x'
set('a','b') default '' | set('a','b') | enum('x') character set binary
date default '2020-1-2' | date default 20200102 | date default '0000-00-00' | date default (curdate()) | date default (current_date)
time | time(0) | time(6) | time default '1:2' | time(2) default 10203 | time default 0 | time default '-1:2:3.9' | time(3) default '1 2:3:4.5678'
datetime | datetime(3) | datetime default 0 | datetime default '2020-01-02' | datetime(3) default '2020-01-02 03:04:05.6789'
datetime default '20200102030405' | datetime default '20-1-2 3:4' | datetime default '2020-01-02T03:04:05'
datetime default '2020-01-01 00:00:00.9' | datetime default '2019-12-31 23:59:59.99' | datetime(6) default now(6) on update now(6)
datetime default current_timestamp | datetime default (now()) | datetime default localtime | datetime default localtimestamp()
datetime default timestamp'2020-01-01 00:00:00' | date default date'2020-01-01'
timestamp | timestamp null | timestamp not null | timestamp default '2020-01-02 03:04:05' | timestamp(2) default localtime(2)
timestamp default current_timestamp on update current_timestamp | timestamp null default null | timestamp default 0
year | year(4) | year default '99' | year default 2020 | year default 0 | year default '0' | year(2) | year default 5
json | json default (json_array()) | json not null | vector(3) | vector | geometry | point not null srid 4326 | point | uuid | inet6 | inet4
serial | int auto_increment unique | bigint serial default value | int null auto_increment primary key | int not null unique key
int unique default 4 not null comment 'x' | int primary key comment 'primary key, unique' | int key
int generated always as (1 + 1) virtual | int as (2) stored | int as (3) persistent | int as (4) | int as (5) virtual not null
varchar(36) default (uuid()) | varchar(36) default uuid() | int default (1+1) | varchar(9) default ('abc') | text default ('x')
int default (5) | int default rand() | int default 1+1 | varchar(10) default current_user() | text default 'x' | text compressed
varchar(99) compressed | blob compressed=zlib | int check (`c` > 0) | int constraint ck check (`c` > 0) | int column_format dynamic
int storage memory | int comment 'it''s; -- # /* x */ ,)' | int not null default 1 visible | varchar(3) collate utf8mb4_bin
varchar(3) character set utf8mb4 collate utf8mb4_general_ci | varchar(3) charset = latin1 | varchar(3) charset 'latin1'
varchar(3) collate 'latin1_bin' | int engine_attribute='{}' | int /* plain */ not null /*!50000 default 7 */ | int /*!99999 not null */ default 1
int /*M!100100 not null */ | int signed | bigint signed zerofill | decimal(10,2) signed | float zerofill
varchar(20) default 'a\\tb\\0c' | char(10) default "double" | varchar(10) default 'x''y"z' | int ref_system_id=4 | varchar(10) collate uca1400_ai_ci
"""

TABLES = [
    [
        "CREATE TABLE IF NOT EXISTS `t` (`id` bigint(20) unsigned NOT NULL AUTO_INCREMENT, `amt` decimal(12,2) DEFAULT '0.00'"
        " COMMENT 'a,b', `at` datetime(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), PRIMARY KEY"
        " (`id`), UNIQUE KEY `u` (`amt`,`at`), KEY `k` (`at` DESC)) ENGINE=InnoDB AUTO_INCREMENT=7 DEFAULT CHARSET=utf8mb4"
        " COLLATE=utf8mb4_bin COMMENT='x'"
    ],
    [
        "CREATE TABLE g (a int, b int GENERATED ALWAYS AS (a+1) VIRTUAL, c int AS (a*2) STORED, d json,"
        " KEY ((cast(d->>'$.x' as char(10)))))"
    ],
    ["CREATE TABLE g (a int, b int GENERATED ALWAYS AS (a+1) VIRTUAL, c int AS (a*2) PERSISTENT, KEY (b), UNIQUE (c))"],
    ["CREATE TABLE t (a int, b int, UNIQUE ((a + b)), UNIQUE KEY f ((a * 2), b), KEY ((a - 1)))"],
    [
        "CREATE TABLE t (s enum('a','b''c') NOT NULL, f set('x','y'), b bit(8) default b'101', y year, t time(6), z mediumint zerofill)"
    ],
    [
        "CREATE TABLE p (id int, d date) PARTITION BY RANGE (YEAR(d)) (PARTITION p0 VALUES LESS THAN (2020), PARTITION p1 VALUES LESS THAN MAXVALUE)"
    ],
    ["CREATE TABLE p (id int) PARTITION BY HASH(id) PARTITIONS 4"],
    [
        "CREATE TABLE p (id int, s varchar(9)) PARTITION BY LIST COLUMNS(s) (PARTITION a VALUES IN ('x','y'), PARTITION d DEFAULT)"
    ],
    ["CREATE TABLE p (id int primary key) PARTITION BY KEY(id) PARTITIONS 2"],
    [
        "CREATE TABLE p (id int, d date) ENGINE=InnoDB CHARSET latin1 PARTITION BY RANGE (YEAR(d)) SUBPARTITION BY HASH (id) SUBPARTITIONS 2 (PARTITION p0 VALUES LESS THAN (2020))"
    ],
    [T, "CREATE TABLE l LIKE t"],
    [T, "CREATE TABLE l (LIKE t)"],
    [P, "CREATE TABLE l LIKE p"],
    [T, "INSERT INTO t VALUES (1, 'a', 2)", "CREATE TABLE cs AS SELECT * FROM t"],
    [
        T,
        "INSERT INTO t VALUES (1, 'a', 2)",
        "CREATE TABLE cs (z int primary key auto_increment, w bigint) SELECT w, v FROM t",
    ],
    ["CREATE TABLE cs2 (id int primary key) SELECT 1 AS id"],
    [T, "CREATE TABLE cs SELECT concat(v, 'é') AS c, w + 1.5 AS d, now() AS n, 'x' AS e, id FROM t"],
    [T, "CREATE TABLE cs IGNORE AS SELECT 1 AS x, NULL AS y, CAST('a' AS BINARY) AS z, 1e0 AS f"],
    ["CREATE TEMPORARY TABLE tmp (id int)", "CREATE TABLE t LIKE tmp", "DROP TEMPORARY TABLE tmp"],
    [T, "CREATE TEMPORARY TABLE t (x int)", "ALTER TABLE t ADD y int", "TRUNCATE TABLE t", "DROP TABLE t"],
    [
        "CREATE TABLE ch (a char(3) CHARACTER SET latin1 COLLATE latin1_bin, b varchar(4) CHARSET utf8mb3, c text ASCII, n national varchar(9), bb varbinary(3))"
    ],
    [
        "CREATE TABLE t (id int primary key)",
        "CREATE TABLE fk (id int, o int, CONSTRAINT fk1 FOREIGN KEY (o) REFERENCES t (id) ON DELETE CASCADE ON UPDATE SET NULL, CHECK (id > 0), CONSTRAINT c2 CHECK (o <> 1) NOT ENFORCED)",
    ],
    [
        "CREATE TABLE t (id int primary key)",
        "CREATE TABLE fk (id int, o int, FOREIGN KEY (o) REFERENCES t (id) ON DELETE SET NULL, FOREIGN KEY i2 (id) REFERENCES t (id) ON UPDATE RESTRICT, KEY (o))",
    ],
    [
        "CREATE TABLE t (id int primary key)",
        "CREATE TABLE fk (id int, o int REFERENCES t (id) ON DELETE CASCADE ON UPDATE NO ACTION)",
    ],
    ["CREATE TABLE t (id int primary key)", "CREATE TABLE fk (id int, o int REFERENCES t, p int NOT NULL)"],
    [
        "CREATE TABLE t (id int primary key)",
        "CREATE TABLE fk (o int, p int, CONSTRAINT a FOREIGN KEY b (o) REFERENCES t (id), UNIQUE (o, p))",
    ],
    ["CREATE TABLE sp (id int, x text, FULLTEXT KEY ft (x) WITH PARSER ngram, FULLTEXT (x))"],
    ["CREATE TABLE sp (id int, x text, FULLTEXT KEY ft (x), FULLTEXT INDEX (x))"],
    ["CREATE TABLE inv (id int, h int INVISIBLE, i int, KEY k (i) INVISIBLE)"],
    ["CREATE TABLE inv (id int, h int INVISIBLE DEFAULT 3, i int, KEY k (i) IGNORED)"],
    [
        "CREATE TABLE d8 (id int, j json DEFAULT (json_array()), u varchar(36) DEFAULT (uuid()), f float(7,3), d double precision, r real, dec1 dec(5), b bool DEFAULT TRUE, s serial)"
    ],
    ["CREATE TABLE orx (id int)", "CREATE OR REPLACE TABLE orx (id bigint, b int) ENGINE=Aria TRANSACTIONAL=1"],
    ["CREATE OR REPLACE TABLE orx (id int)", "CREATE OR REPLACE TABLE orx (x int) CHARSET latin1"],
    ["CREATE SEQUENCE s1", "CREATE TABLE seqd (id bigint DEFAULT NEXTVAL(s1), j int DEFAULT (NEXT VALUE FOR s1))"],
    [
        "CREATE SEQUENCE s1",
        "ALTER SEQUENCE s1 RESTART 5",
        "RENAME TABLE s1 TO s2",
        "CREATE SEQUENCE IF NOT EXISTS s2",
        "CREATE OR REPLACE SEQUENCE s3",
        "DROP SEQUENCE s2",
    ],
    [
        "CREATE TABLE `we``ird` (`a b` int, `sel.ect` int, `键` varchar(3) COMMENT 'it''s; --')",
        "ALTER TABLE `we``ird` CHANGE `a b` `c.d` int, ADD `x``y` int AFTER `sel.ect`",
    ],
    [
        "CREATE TABLE cmp (a blob, b varchar(10) COLUMN_FORMAT DYNAMIC STORAGE MEMORY) ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8"
    ],
    [
        "CREATE TABLE `x` (`a` int /*!80023 INVISIBLE */, `b` int /*!50606 STORAGE DISK */ ) /*!50100 TABLESPACE innodb_file_per_table */ ENGINE=InnoDB /*!50100 PARTITION BY KEY (a) PARTITIONS 2 */"
    ],
    ["CREATE TABLE x (a int /*!50000 NOT NULL */, /*!50000 b int, */ /* c int, */ d int -- e int\n , # f int\n g int)"],
    ["CREATE TABLE x (a int) /*!99999 CHARSET latin1 */", "ALTER TABLE x ADD b text, ADD c text(300)"],
    ["CREATE TABLE x (a int) CHARSET=latin1", "ALTER TABLE x ADD b text(255), ADD c text(256), ADD e enum('a')"],
    ["CREATE TABLE x (a int, b text(255)) DEFAULT CHARACTER SET = latin1, COLLATE = latin1_bin"],
    ["CREATE TABLE x (a varchar(10), b text(255)) COLLATE latin1_bin"],
    ["CREATE TABLE x (a varchar(10), b text) CHARSET binary", "ALTER TABLE x ADD c char(3)"],
    ["CREATE TABLE x (a varchar(10)) CHARSET utf8", "ALTER TABLE x ADD c text(60)"],
    [
        "CREATE TABLE t (a int, b int, UNIQUE (a), UNIQUE (a, b), UNIQUE (a DESC), KEY (a), INDEX (b), UNIQUE KEY b_2 (b))"
    ],
    [
        "CREATE TABLE t (a int UNIQUE, b int UNIQUE KEY, UNIQUE (a), CONSTRAINT c UNIQUE (b), CONSTRAINT d UNIQUE KEY e (a, b), CONSTRAINT UNIQUE (b, a))"
    ],
    [
        "CREATE TABLE t (a int, PRIMARY KEY USING BTREE (a), b int, UNIQUE u USING HASH (b) COMMENT 'x' KEY_BLOCK_SIZE=4)"
    ],
    ["CREATE TABLE t (a varchar(300), b text, PRIMARY KEY (a(10)), UNIQUE (b(5), a(3)))"],
    ["CREATE TABLE t (a int, b int, CONSTRAINT pk PRIMARY KEY (b, a))"],
    ["CREATE TABLE t (a int null, b int default null, PRIMARY KEY (b))", "ALTER TABLE t DROP PRIMARY KEY"],
    [
        "CREATE TABLE t (`primary` int, `key` int, `index` int, `unique` int, `check` int, period int, first int, after int, visible int, UNIQUE (`primary`))"
    ],
    ["CREATE TABLE t (id int, s date, e date, PERIOD FOR p(s, e), UNIQUE (id, p WITHOUT OVERLAPS))"],
    ["CREATE TABLE t (id int, x text, UNIQUE (x))"],
    [
        "CREATE TABLE t (id int) UNION=() INSERT_METHOD=NO",
        "CREATE TABLE t2 (id int) ENGINE MyISAM DATA DIRECTORY='/tmp' CHECKSUM=1 PACK_KEYS=1 COMMENT 'engine charset latin1'",
    ],
    [
        "CREATE TABLE t (id int) STATS_PERSISTENT=1 STATS_AUTO_RECALC=DEFAULT AVG_ROW_LENGTH 3 MAX_ROWS=4 MIN_ROWS 1 DELAY_KEY_WRITE=0"
    ],
    ["CREATE TABLE T1 (Id int, ID2 int)", "CREATE TABLE t1 (x int)", "ALTER TABLE T1 RENAME COLUMN id TO Other"],
    [
        "create table `Ünïcode` (`Größe` int, é int, `naïve` varchar(3))",
        "alter table Ünïcode drop column GRÖßE, rename column NAÏVE to n2",
    ],
    ["CREATE TABLE a.t (x int)"],
]

ALTERS = """
ADD COLUMN c int NOT NULL DEFAULT 3 AFTER v
ADD COLUMN (x int, y varchar(3))
ADD (x int, y varchar(3), UNIQUE (y), KEY (x))
ADD c2 int FIRST, ADD COLUMN c3 int, DROP COLUMN v
ADD c2 int FIRST, ADD c3 int AFTER c2, ADD c4 int AFTER c3, ADD c5 int FIRST
ADD COLUMN IF NOT EXISTS c4 int
ADD COLUMN IF NOT EXISTS v int, ADD COLUMN IF NOT EXISTS (v int, z int)
ADD c int UNIQUE, ADD d int UNIQUE KEY COMMENT 'key'
ADD id2 int AUTO_INCREMENT UNIQUE
ADD c text, ADD d text(300) CHARACTER SET latin1, ADD e char(3) COLLATE latin1_bin
ADD c timestamp, ADD d datetime DEFAULT now(), ADD e json
ADD c int AS (w + 1) VIRTUAL, ADD d int AS (w + 2) STORED AFTER id
ADD COLUMN `column` int, ADD `index` int, ADD `first` int AFTER `column`
ADD COLUMN z int, ALGORITHM=INSTANT, LOCK=NONE
ADD COLUMN z int, ALGORITHM INPLACE, FORCE
DROP COLUMN IF EXISTS c4, DROP KEY k
DROP COLUMN IF EXISTS v, DROP KEY IF EXISTS nope, DROP INDEX IF EXISTS k
DROP v
DROP COLUMN w RESTRICT
DROP COLUMN w, DROP COLUMN v
DROP COLUMN v, ADD COLUMN v int
DROP COLUMN v, ADD COLUMN v int AFTER id
DROP INDEX u, ADD UNIQUE u (w)
DROP KEY u, DROP PRIMARY KEY, ADD PRIMARY KEY (v)
DROP PRIMARY KEY
DROP PRIMARY KEY, ADD PRIMARY KEY (w, id)
DROP PRIMARY KEY, DROP COLUMN id
DROP COLUMN id, ADD COLUMN id bigint PRIMARY KEY FIRST
DROP CONSTRAINT u
DROP CONSTRAINT `PRIMARY`
DROP CONSTRAINT IF EXISTS nope
MODIFY COLUMN v varchar(40) CHARACTER SET utf8mb4 NOT NULL COMMENT 'n' AFTER id
MODIFY v bigint unsigned
MODIFY v text
MODIFY w bigint FIRST, MODIFY id bigint AFTER v
MODIFY v varchar(20) AFTER w, MODIFY id int AFTER v
MODIFY id bigint
MODIFY id int NULL
MODIFY id int AUTO_INCREMENT
MODIFY w int UNIQUE
MODIFY w int NOT NULL DEFAULT 5 AFTER id, ADD x int AFTER w
MODIFY COLUMN IF EXISTS nope int
MODIFY w enum('a','b','c') CHARSET latin1
MODIFY v varchar(70000)
CHANGE COLUMN v w2 varchar(50) DEFAULT NULL
CHANGE `v` `x` int FIRST
CHANGE v w varchar(20), CHANGE w v int
CHANGE v V varchar(20)
CHANGE id id2 bigint, CHANGE w id int
CHANGE v x varchar(20), ADD y int AFTER x
CHANGE v x varchar(20) FIRST, CHANGE id y int AFTER x
CHANGE IF EXISTS nope x int
RENAME COLUMN v TO x
RENAME COLUMN v TO w, RENAME COLUMN w TO v
RENAME COLUMN id TO v, RENAME COLUMN v TO id
RENAME COLUMN v TO x, ADD v int
RENAME COLUMN v TO x, ALTER v SET DEFAULT 'q'
RENAME COLUMN IF EXISTS nope TO x
RENAME TO t2
RENAME t2
RENAME AS t2, ADD c int
RENAME = t2
ADD c int, RENAME t2, DROP KEY k
RENAME INDEX k TO kk
RENAME KEY u TO w, RENAME INDEX k TO u
RENAME INDEX IF EXISTS nope TO x
ADD UNIQUE KEY uu (v(10))
ADD UNIQUE (w), ADD UNIQUE (w), ADD INDEX (w), ADD KEY (v)
ADD UNIQUE INDEX (w, v) USING BTREE COMMENT 'x'
ADD CONSTRAINT u2 UNIQUE (w)
ADD CONSTRAINT UNIQUE (w)
ADD CONSTRAINT u2 UNIQUE KEY u3 (w)
ADD UNIQUE KEY IF NOT EXISTS u (w)
ADD INDEX IF NOT EXISTS nk (w), ADD KEY IF NOT EXISTS k (v)
ADD CONSTRAINT ck CHECK (w > 0), ADD CHECK (id > 0)
ADD CONSTRAINT fk FOREIGN KEY (w) REFERENCES t (id) ON DELETE CASCADE
ADD FOREIGN KEY (w) REFERENCES t (id), ADD FOREIGN KEY fk2 (w) REFERENCES t (id)
ADD FULLTEXT INDEX ft(v), FORCE
ADD FULLTEXT (v)
ALTER COLUMN v SET DEFAULT 'q', ALTER w DROP DEFAULT
ALTER v SET DEFAULT NULL
ALTER v DROP DEFAULT
ALTER w SET DEFAULT 5
ALTER w SET DEFAULT (1 + 1)
ALTER COLUMN w SET INVISIBLE
ALTER INDEX k INVISIBLE
ALTER INDEX k IGNORED
ALTER COLUMN IF EXISTS nope SET DEFAULT 1
CONVERT TO CHARACTER SET latin1 COLLATE latin1_bin
CONVERT TO CHARSET utf8mb3
CONVERT TO CHARACTER SET DEFAULT
CONVERT TO CHARACTER SET latin1, ADD c text(255)
CONVERT TO CHARACTER SET binary
DEFAULT CHARSET=latin1, COMMENT='z', ENGINE=InnoDB, AUTO_INCREMENT=100
CHARACTER SET = latin1, ADD c text(255), MODIFY v varchar(9)
COLLATE latin1_bin, ADD c char(3)
COMMENT 'x' ENGINE=InnoDB ROW_FORMAT DYNAMIC
COMMENT = 'charset latin1'
ENGINE=MyISAM
ENGINE InnoDB
AUTO_INCREMENT 5
ORDER BY id
ORDER BY id DESC, w ASC
ADD c int, ORDER BY id, v
DISABLE KEYS
ENABLE KEYS, ADD c int
FORCE
STATS_PERSISTENT=1, ADD c int
PARTITION BY HASH(id) PARTITIONS 3
DROP KEY u, PARTITION BY HASH(id) PARTITIONS 3
ADD SYSTEM VERSIONING
ADD c int /*!50100 NOT NULL */ /*!99999 FIRST */
ADD c int -- comment\n , ADD d int # other
ADD c varchar(10) DEFAULT 'a,b(c', ADD d enum('x,y', 'z)') AFTER c
ADD c int COMMENT 'FIRST', ADD d int COMMENT 'AFTER v' FIRST
ADD c bit(3) DEFAULT b'011', ADD d binary(2) DEFAULT x'4142'
WAIT 5 ADD c int
NOWAIT ADD c int
RENAME COLUMN v TO `select`, ADD UNIQUE (`select`)
"""

OTHERS = [
    [TEXTS.replace("CREATE", "CREATE", 1), "ALTER TABLE t CONVERT TO CHARACTER SET latin1"],
    [TEXTS + " CHARSET latin1", "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4"],
    [
        TEXTS + " CHARSET latin1",
        "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb3",
        "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4",
    ],
    [TEXTS + " CHARSET latin1", "ALTER TABLE t CONVERT TO CHARACTER SET binary"],
    [TEXTS, "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"],
    [
        TEXTS,
        "ALTER TABLE t MODIFY e text(20), MODIFY a blob, MODIFY i text, CHANGE d dd varchar(4), MODIFY g enum('b','c')",
    ],
    [P, "ALTER TABLE p ADD PARTITION (PARTITION p3 VALUES LESS THAN (2040))"],
    [P, "ALTER TABLE p ADD PARTITION IF NOT EXISTS (PARTITION p1 VALUES LESS THAN (2040))"],
    [P, "ALTER TABLE p DROP PARTITION p0"],
    [P, "ALTER TABLE p DROP PARTITION IF EXISTS p0, p9"],
    [P, "ALTER TABLE p TRUNCATE PARTITION p0, p1"],
    [P, "ALTER TABLE p REORGANIZE PARTITION p0,p1 INTO (PARTITION n VALUES LESS THAN (2050))"],
    [P, "ALTER TABLE p REBUILD PARTITION p0, p1"],
    [P, "ALTER TABLE p ANALYZE PARTITION p0"],
    [P, "CREATE TABLE n (id int, d date)", "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE n WITHOUT VALIDATION"],
    [P, "ALTER TABLE p REMOVE PARTITIONING"],
    [P, "ALTER TABLE p ADD c int, REMOVE PARTITIONING"],
    [P, "ALTER TABLE p ADD c int PARTITION BY HASH (id) PARTITIONS 2"],
    [P, "ALTER TABLE p CONVERT PARTITION p0 TO TABLE n"],
    [P, "CREATE TABLE n (id int, d date)", "ALTER TABLE p CONVERT TABLE n TO PARTITION pn VALUES LESS THAN (2040)"],
    [P, "TRUNCATE p", "ALTER TABLE p ADD COLUMN x int FIRST", "DROP TABLE p"],
    [
        "CREATE TABLE h (id int) PARTITION BY HASH (id) PARTITIONS 4",
        "ALTER TABLE h COALESCE PARTITION 2",
        "ALTER TABLE h ADD PARTITION PARTITIONS 3",
    ],
    [T, "ALTER ONLINE TABLE t ADD COLUMN q int"],
    [T, "ALTER IGNORE TABLE t ADD UNIQUE (v)"],
    [T, "ALTER TABLE IF EXISTS t ADD c int", "ALTER TABLE IF EXISTS nope ADD c int"],
    [T, "DROP TABLE IF EXISTS nope, t CASCADE"],
    [T, "CREATE TABLE a (x int)", "DROP TABLE a, t"],
    [T, "DROP TABLES t"],
    [T, "DROP TABLE `t` /* generated by somebody */"],
    [T, "TRUNCATE TABLE t"],
    [T, "TRUNCATE t"],
    [T, "RENAME TABLE t TO a"],
    [T, "CREATE TABLE a (x int)", "RENAME TABLE t TO tmp, a TO t, tmp TO a"],
    [T, "RENAME TABLES t TO t1, t1 TO t2"],
    [T, "RENAME TABLE IF EXISTS nope TO x, t TO y"],
    [T, "CREATE INDEX i ON t (v(10), id DESC)"],
    [T, "CREATE UNIQUE INDEX uu ON t (w)"],
    [T, "CREATE UNIQUE INDEX uu USING BTREE ON t (w) COMMENT 'x' ALGORITHM=INPLACE LOCK=NONE"],
    [T, "CREATE OR REPLACE UNIQUE INDEX u ON t (id)"],
    [T, "CREATE INDEX IF NOT EXISTS u ON t (id)"],
    [T, "CREATE FULLTEXT INDEX ft ON t (v)"],
    [T, "CREATE UNIQUE INDEX f ON t ((w + 1))"],
    [T, "DROP INDEX u ON t"],
    [T, "DROP INDEX `PRIMARY` ON t"],
    [T, "DROP INDEX IF EXISTS nope ON t", "DROP INDEX k ON t ALGORITHM=INPLACE"],
    [
        T,
        "CREATE OR REPLACE ALGORITHM=MERGE DEFINER=`root`@`%` SQL SECURITY DEFINER VIEW vw AS SELECT 1",
        "RENAME TABLE vw TO vw2",
        "ALTER VIEW vw2 AS SELECT 2",
        "DROP VIEW vw2",
    ],
    [T, "CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.w = 1", "DROP TRIGGER tr"],
    [T, "CREATE PROCEDURE pr() BEGIN DROP TABLE IF EXISTS never; END", "DROP PROCEDURE pr"],
    [
        T,
        "CREATE FUNCTION fn() RETURNS int DETERMINISTIC RETURN 1",
        "DROP FUNCTION fn",
        "CREATE EVENT ev ON SCHEDULE EVERY 1 DAY DO SET @a = 1",
        "ALTER EVENT ev DISABLE",
        "DROP EVENT ev",
    ],
    [T, "ANALYZE TABLE t", "OPTIMIZE TABLE t", "FLUSH TABLES"],
    [T, "LOCK TABLES t WRITE", "ALTER TABLE t ADD c int", "UNLOCK TABLES"],
    [T, "SET STATEMENT max_statement_time=100 FOR ALTER TABLE t ADD c int"],
    [
        "CREATE TABLE t (id int primary key)",
        "CREATE TABLE fk (id int, o int, KEY (o), FOREIGN KEY (o) REFERENCES t (id), CONSTRAINT f2 FOREIGN KEY (id) REFERENCES t (id))",
        "ALTER TABLE fk DROP FOREIGN KEY fk_ibfk_1, DROP FOREIGN KEY f2",
        "ALTER TABLE fk ADD UNIQUE (id), ADD UNIQUE (o)",
    ],
    [
        "CREATE TABLE t (id int primary key)",
        "CREATE TABLE fk (id int, FOREIGN KEY (id) REFERENCES t (id))",
        "RENAME TABLE fk TO fk3",
        "ALTER TABLE fk3 RENAME COLUMN id TO x",
    ],
    [
        "SET sql_mode = 'ANSI_QUOTES'",
        'CREATE TABLE "t" ("a" int, "b""c" varchar(9) DEFAULT \'x\', "key" int)',
        'ALTER TABLE "t" ADD "d" int AFTER "a", ADD UNIQUE "u" ("key")',
    ],
    [
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
        "CREATE TABLE t (a varchar(9) DEFAULT 'x\\', b enum('\\', 'c') DEFAULT '\\')",
    ],
    ["SET sql_mode = 'REAL_AS_FLOAT'", "CREATE TABLE t (a real, b double)"],
    ["SET sql_mode = 'ORACLE'", "CREATE TABLE t (a date, b varchar2(10), c clob, d raw(5), e blob, f int)"],
    ["SET sql_mode = 'MAXDB'", "CREATE TABLE t (a timestamp, b int)"],
    [
        "SET sql_mode = 'TIME_TRUNCATE_FRACTIONAL'",
        "CREATE TABLE t (a datetime default '2020-01-01 00:00:00.9', b time default '1:2:3.9')",
    ],
    [
        "SET sql_mode = 'TIME_ROUND_FRACTIONAL'",
        "CREATE TABLE t (a datetime default '2020-01-01 00:00:00.9', b time default '1:2:3.9')",
    ],
    [
        "SET explicit_defaults_for_timestamp = 0",
        "CREATE TABLE t (a timestamp, b timestamp, c timestamp null, d timestamp default 0, e timestamp(3) not null)",
        "ALTER TABLE t ADD f timestamp, MODIFY a timestamp",
    ],
    [
        "SET explicit_defaults_for_timestamp = 0",
        "CREATE TABLE t (a timestamp not null, b timestamp default now())",
        "ALTER TABLE t DROP a, ADD c timestamp FIRST",
    ],
    [
        "SET explicit_defaults_for_timestamp = 0",
        "CREATE TABLE t (x int)",
        "ALTER TABLE t ADD c timestamp, ADD d timestamp",
    ],
    [
        "SET time_zone = '+02:00'",
        "CREATE TABLE t (a timestamp default '2020-01-01 00:30:00', b datetime default '2020-01-01 00:30:00')",
    ],
    ["SET NAMES latin1", "CREATE TABLE t (a enum('é', 'b') default 'é', `ö` int)"],
    ["SET sql_generate_invisible_primary_key = 1", "CREATE TABLE t (a int)", "ALTER TABLE t ADD b int FIRST"],
    ["SET default_storage_engine = MyISAM", "CREATE TABLE t (a int) ENGINE=InnoDB"],
    [T, "ALTER TABLE t DISCARD TABLESPACE"],
    [
        "CREATE TABLE t (a int) WITH SYSTEM VERSIONING",
        "CREATE TABLE u (a int, s timestamp(6) GENERATED ALWAYS AS ROW START, e timestamp(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME(s,e)) WITH SYSTEM VERSIONING",
        "ALTER TABLE t DROP SYSTEM VERSIONING",
    ],
    [
        "CREATE TABLE t (a int NOT NULL, b int)",
        "ALTER TABLE t ADD UNIQUE (a)",
        "ALTER TABLE t ADD COLUMN a_2 int UNIQUE, ADD UNIQUE (a)",
        "ALTER TABLE t DROP KEY a_2",
    ],
    [
        "CREATE TABLE t (a int, b int, c int, UNIQUE (a, b), KEY (b, c))",
        "ALTER TABLE t DROP COLUMN b",
        "ALTER TABLE t ADD b int, ADD UNIQUE (b)",
    ],
    [
        "CREATE TABLE t (a int, b int, c int)",
        "ALTER TABLE t MODIFY a int AFTER c, ADD d int AFTER a, MODIFY c int FIRST",
    ],
    ["CREATE TABLE t (a int, b int, c int)", "ALTER TABLE t MODIFY a int AFTER b, MODIFY b int AFTER c"],
    [
        "CREATE TABLE t (a int, b int, c int)",
        "ALTER TABLE t MODIFY c int FIRST, MODIFY b int FIRST, MODIFY a int AFTER c",
    ],
    ["CREATE TABLE t (a int, b int)", "CREATE TABLE IF NOT EXISTS t (x int)", "DROP TABLE IF EXISTS nope"],
    [
        "CREATE TABLE t (a int, b int AS (a) VIRTUAL, c int AS (a) STORED)",
        "ALTER TABLE t MODIFY c int, ADD d int AS (a + c) VIRTUAL FIRST",
        "ALTER TABLE t CHANGE a x int",
    ],
    ["CREATE TABLE t (a int) COMMENT='/* not a comment */'", "ALTER TABLE t /* a */ ADD /* b */ c /* d, e */ int"],
    ["CREATE TABLE t (a int)", "ALTER TABLE t ADD b int;"],
    ["  create\ttable\nt(a int)comment'x'", "alter table t add(b int,c int)", "alter table`t`add`d`int"],
]


def scenarios() -> list[list[str]]:
    columns = [part.strip() for line in COLUMNS.strip().split("\n") for part in line.split(" | ")]
    created = [[f"CREATE TABLE t (`c` {column}, `other` int)"] for column in columns]
    altered = [[T, f"ALTER TABLE t {part}".replace("\\n", "\n")] for part in ALTERS.strip().split("\n")]
    added = [[T, f"ALTER TABLE t ADD `c` {column} FIRST"] for column in columns[::5]]
    changed = [
        ["CREATE TABLE t (o int, c int) CHARSET latin1", f"ALTER TABLE t MODIFY `c` {column}"]
        for column in columns[::3]
    ]
    return [*created, *TABLES, *altered, *OTHERS, *added, *changed]
