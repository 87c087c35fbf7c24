"""Django and SQLAlchemy, where they are installed. ONEWRITE_TEST_FRAMEWORKS=1 says that they must be."""

import importlib.util
import os
import sys
import unittest
import warnings

import onewrite
from support import Place, printed

MUST = os.environ.get("ONEWRITE_TEST_FRAMEWORKS") == "1"


def needs(module):
    return unittest.skipUnless(MUST or importlib.util.find_spec(module), f"{module} is not installed")


SETTINGS = """if True:
    import os, sys
    import django
    from django.conf import settings
    options = eval(sys.argv[2])
    settings.configure(DATABASES={"default": {"ENGINE": "onewrite.django", "NAME": sys.argv[1], **options}})
    django.setup()
    from django.db import connection
"""


@needs("django")
class Django(Place):
    def django(self, code, options="{}"):
        return printed(SETTINGS + "if True:\n" + code, self.path, options)

    def test_a_database_is_in_the_mode_at_full(self):
        code = """
            import onewrite
            with connection.cursor() as cursor:
                cursor.execute("CREATE TABLE t(x)")
            print(onewrite.check(connection.connection)["mode"])
            connection.close()
        """
        self.assertEqual("onewrite", self.django(code))

    def test_options_and_pragmas_at_each_connect(self):
        code = """
            import onewrite
            from django.db.backends.signals import connection_created
            def pragmas(connection, **_):
                connection.cursor().execute("PRAGMA journal_mode=WAL")
            connection_created.connect(pragmas)
            connection.ensure_connection()
            print(onewrite.check(connection.connection, "waldio", "EXTRA")["mode"])
        """
        options = "{'OPTIONS': {'mode': 'waldio', 'synchronous': 'EXTRA', 'timeout': 3}}"
        self.assertEqual("waldio", self.django(code, options))

    def test_a_kept_connection_stays_in_the_mode(self):
        code = """
            import onewrite
            from django.core.signals import request_finished, request_started
            connection.ensure_connection()
            kept = connection.connection
            for _ in range(3):
                request_started.send(sender=None)
                connection.cursor().execute("CREATE TABLE IF NOT EXISTS t(x)")
                request_finished.send(sender=None)
            print(connection.connection is kept, onewrite.check(kept)["mode"])
        """
        self.assertEqual("True onewrite", self.django(code, "{'CONN_MAX_AGE': None}"))

    def test_a_connection_that_is_closed_after_each_request_is_warned_of(self):
        code = """
            from django.core import checks
            print([found.id for found in checks.run_checks(tags=["database"], databases=["default"])])
        """
        self.assertEqual("['onewrite.W001']", self.django(code))
        self.assertEqual("[]", self.django(code, "{'CONN_MAX_AGE': None}"))
        self.assertEqual("[]", self.django(code, "{'OPTIONS': {'linger': '5s'}}"))

    def test_a_database_lingers_between_requests(self):
        code = """
            import json
            from django.core.signals import request_finished, request_started
            def durable():
                status = json.loads(connection.cursor().execute("PRAGMA onewrite_status").fetchone()[0])
                return status["flushes"] + status["write_through"] + status["setup_flushes"]
            connection.cursor().execute("CREATE TABLE t(x)")
            before = durable()
            for _ in range(10):
                request_finished.send(sender=None)
                request_started.send(sender=None)
                assert connection.connection is None
                connection.cursor().execute("INSERT INTO t VALUES(1)")
            print(durable() - before)
        """
        self.assertEqual("10", self.django(code, "{'OPTIONS': {'linger': '60s'}}"))

    def test_wrong_words_are_loud(self):
        code = """
            try: connection.ensure_connection()
            except ValueError as error: print(error)
        """
        said = self.django(code, "{'OPTIONS': {'mode': 'wladio'}}")
        self.assertIn("unknown mode 'wladio'", said)
        code = code.replace("ValueError", "Exception")
        said = self.django(code, "{'OPTIONS': {'linger': '5 weeks'}}")
        self.assertIn("unknown value '5 weeks'", said)

    def test_dbshell_is_the_shell_of_onewrite(self):
        code = """
            from onewrite.django.client import DatabaseClient
            print(*DatabaseClient.settings_to_cmd_args_env(connection.settings_dict, ["-json"])[0])
        """
        said = self.django(code)
        self.assertEqual(f"{sys.executable} -m onewrite shell {self.path} -json", said)

    def test_a_test_database_leaves_no_files(self):
        code = """
            connection.creation.create_test_db(verbosity=0)
            import onewrite
            connection.ensure_connection()
            print(onewrite.check(connection.connection)["mode"])
            connection.creation.destroy_test_db(sys.argv[1], verbosity=0)
        """
        name = os.path.join(self.directory, "test.db")
        self.assertEqual("onewrite", self.django(code, f"{{'TEST': {{'NAME': {name!r}}}}}"))
        self.assertEqual([], [file for file in os.listdir(self.directory) if "test" in file])


@needs("sqlalchemy")
class SQLAlchemy(Place):
    def engine(self, pool=None, **words):
        import onewrite.sqlalchemy
        from sqlalchemy import create_engine
        from sqlalchemy.pool import QueuePool

        engine = create_engine(f"sqlite:///{self.path}", poolclass=pool or QueuePool)
        self.addCleanup(engine.dispose)
        return onewrite.sqlalchemy.enable(engine, **words)

    def test_a_database_is_in_the_mode_at_full(self):
        from sqlalchemy import text

        with self.engine(mode="direct").connect() as connection:
            connection.execute(text("CREATE TABLE t(x)"))
            self.assertEqual("direct", onewrite.check(connection.connection, "direct")["mode"])

    def test_an_engine_without_a_pool_is_warned_of(self):
        from sqlalchemy.pool import NullPool

        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            self.engine(NullPool)
        self.assertIn("costs flushes", str(told[-1].message))

    def test_wrong_words_and_drivers_are_loud(self):
        import onewrite.sqlalchemy
        from sqlalchemy import create_mock_engine

        with self.assertRaisesRegex(ValueError, "unknown mode"):
            self.engine(mode="wladio")
        other = create_mock_engine("postgresql://", None) if importlib.util.find_spec("psycopg2") else None
        if other is not None:
            with self.assertRaisesRegex(ValueError, "pysqlite"):
                onewrite.sqlalchemy.enable(other)


if __name__ == "__main__":
    unittest.main()
