/* Transactions for scripts/instructions. Every run with the same numbers makes the same statements.

   instructions EXTENSION MODE DATABASE WARM-UP COMMITS OPERATION PAGE-SIZE

   OPERATION "app" files a message, as a messaging app does: with two indexes, the conversation that it
   belongs to, recipients, labels and attachments. "update" changes one row of 100 bytes after the other, "insert" adds one.
   EXTENSION "stock" is SQLite alone. Prints the bytes that the commits after the warm-up passed to
   write(2) and its kin. */
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 200, COMMON_WORDS = 40, CONVERSATIONS = 64, SENDERS = 200, ROWS = 8000 };

static const char *const SETTINGS =
    "PRAGMA synchronous = FULL;"
    /* Far less than the database, so that pages are read from the log too. */
    "PRAGMA cache_size = -160";

static const char *const SCHEMA =
    "CREATE TABLE conversation(id INTEGER PRIMARY KEY, title TEXT, total INTEGER, unread INTEGER,"
    "  last_sent INTEGER, last_text TEXT);"
    "CREATE TABLE message(id INTEGER PRIMARY KEY, conversation INTEGER, sender INTEGER, sent INTEGER,"
    "  unread INTEGER, body TEXT);"
    "CREATE INDEX message_conversation ON message(conversation, sent);"
    "CREATE INDEX message_sender ON message(sender);"
    "CREATE TABLE recipient(message INTEGER PRIMARY KEY, address TEXT);"
    "CREATE INDEX recipient_address ON recipient(address);"
    "CREATE TABLE label(message INTEGER PRIMARY KEY, name TEXT);"
    "CREATE INDEX label_name ON label(name);"
    "CREATE TABLE attachment(message INTEGER PRIMARY KEY, content BLOB);"
    "BEGIN;"
    "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < 64)"
    "  INSERT INTO conversation SELECT i, 'conversation ' || i, 0, 0, 0, '' FROM n;"
    "COMMIT";

enum { BEGIN, MESSAGE, CONVERSATION, RECIPIENT, LABEL, ATTACHMENT, COMMIT, INSERT, UPDATE, STATEMENTS };
static const char *const SQL[STATEMENTS] = {
    [BEGIN] = "BEGIN IMMEDIATE",
    [MESSAGE] = "INSERT INTO message VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
    [CONVERSATION] = "UPDATE conversation SET total = total + 1, unread = unread + ?2,"
                     " last_text = CASE WHEN last_sent < ?3 THEN ?4 ELSE last_text END,"
                     " last_sent = max(last_sent, ?3) WHERE id = ?1",
    [RECIPIENT] = "INSERT INTO recipient VALUES(?1, ?2)",
    [LABEL] = "INSERT INTO label VALUES(?1, ?2)",
    [ATTACHMENT] = "INSERT INTO attachment VALUES(?1, ?2)",
    [COMMIT] = "COMMIT",
    [INSERT] = "INSERT INTO row(value, created) VALUES(?1, ?2)",
    [UPDATE] = "UPDATE row SET value = ?1 WHERE id = ?2",
};

static sqlite3 *db;
static sqlite3_stmt *statements[STATEMENTS];
static char words[WORDS][12];
static uint64_t state = 88172645463325252ull;

/* Marsaglia's xorshift of 64 bits, without its lowest byte. */
static uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state >> 8;
}

static void check(int code, const char *what) {
    if (code == SQLITE_OK || code == SQLITE_DONE || code == SQLITE_ROW) return;
    fprintf(stderr, "%s: %s\n", what, db ? sqlite3_errmsg(db) : sqlite3_errstr(code));
    exit(1);
}

static void run(int statement) {
    check(sqlite3_step(statements[statement]), SQL[statement]);
    check(sqlite3_reset(statements[statement]), SQL[statement]);
}

/* 3 to 30 words; half of them are common ones. */
static int sentence(char *out) {
    char *end = out;
    for (int left = 3 + draw() % 28; left > 0; left--) {
        if (end != out) *end++ = ' ';
        int word = draw() % WORDS;
        if (draw() % 2) word %= COMMON_WORDS;
        size_t length = strlen(words[word]);
        memcpy(end, words[word], length);
        end += length;
    }
    *end = 0;
    return end - out;
}

static void message(int id, int conversation, int sender, int unread) {
    char body[600], start[40];
    int length = sentence(body);
    snprintf(start, 33, "%.32s", body);
    sqlite3_int64 sent = 1700000000000 + id * 1000ll + draw() % 1000;
    sqlite3_stmt *insert = statements[MESSAGE], *update = statements[CONVERSATION];
    sqlite3_bind_int(insert, 1, id);
    sqlite3_bind_int(insert, 2, conversation);
    sqlite3_bind_int(insert, 3, sender);
    sqlite3_bind_int64(insert, 4, sent);
    sqlite3_bind_int(insert, 5, unread);
    sqlite3_bind_text(insert, 6, body, length, SQLITE_STATIC);
    run(MESSAGE);
    sqlite3_bind_int(update, 1, conversation);
    sqlite3_bind_int(update, 2, unread);
    sqlite3_bind_int64(update, 3, sent);
    sqlite3_bind_text(update, 4, start, -1, SQLITE_STATIC);
    run(CONVERSATION);
}

static void with_text(int statement, int id, const char *text) {
    sqlite3_bind_int(statements[statement], 1, id);
    sqlite3_bind_text(statements[statement], 2, text, -1, SQLITE_STATIC);
    run(statement);
}

static void attachment(int id) {
    static char content[8200];
    int length = 1024 + draw() % 7169;
    for (int at = 0; at + 8 <= length; at += 8) {
        uint64_t bytes = draw() * 0x9E3779B97F4A7C15ull;
        memcpy(content + at, &bytes, 8);
    }
    sqlite3_bind_int(statements[ATTACHMENT], 1, id);
    sqlite3_bind_blob(statements[ATTACHMENT], 2, content, length, SQLITE_STATIC);
    run(ATTACHMENT);
}

/* A row's value: 84 letters. */
static void row(int statement, int number) {
    char value[85];
    for (int at = 0; at < 84; at++) value[at] = 'a' + draw() % 26;
    sqlite3_bind_text(statements[statement], 1, value, 84, SQLITE_STATIC);
    sqlite3_bind_int(statements[statement], 2, number);
    run(statement);
}

static void prepare(int first, int last) {
    for (int i = first; i <= last; i++)
        check(sqlite3_prepare_v2(db, SQL[i], -1, &statements[i], NULL), SQL[i]);
}

static void rows(void) {
    const char *schema = "CREATE TABLE row(id INTEGER PRIMARY KEY, value TEXT, created INTEGER)";
    check(sqlite3_exec(db, schema, NULL, NULL, NULL), schema);
    prepare(COMMIT, UPDATE);
    prepare(BEGIN, BEGIN);
    run(BEGIN);
    for (int id = 1; id <= ROWS; id++) row(INSERT, id);
    run(COMMIT);
}

static void file_message(int id) {
    /* A few conversations and senders are busy. */
    int conversation = 1 + draw() % CONVERSATIONS * (draw() % CONVERSATIONS) / CONVERSATIONS;
    int sender = 1 + draw() % SENDERS * (draw() % SENDERS) / SENDERS;
    int unread = draw() % 3 > 0;
    run(BEGIN);
    message(id, conversation, sender, unread);
    int kind = draw() % 4;
    if (kind >= 2) {
        char address[40];
        const char *first = words[draw() % WORDS], *last = words[draw() % WORDS];
        snprintf(address, sizeof address, "%s.%s@%s.example", first, last, words[draw() % COMMON_WORDS]);
        with_text(RECIPIENT, id, address);
    }
    if (kind == 3) with_text(LABEL, id, words[draw() % 10]);
    if (draw() % 20 == 0) attachment(id);
    run(COMMIT);
}

static void transaction(char operation, int id) {
    switch (operation) {
    case 'a': file_message(id); break;
    case 'u': row(UPDATE, 1 + id % ROWS); break;
    default: row(INSERT, id);
    }
}

static long written(void) {
    FILE *io = fopen("/proc/self/io", "r");
    char name[64];
    long value, bytes = 0;
    while (io && fscanf(io, "%63s %ld", name, &value) == 2)
        if (!strcmp(name, "wchar:")) bytes = value;
    if (io) fclose(io);
    return bytes;
}

static void load(const char *extension) {
    char *error = NULL;
    sqlite3 *loader;
    check(sqlite3_open(":memory:", &loader), "a connection");
    sqlite3_enable_load_extension(loader, 1);
    if (sqlite3_load_extension(loader, extension, NULL, &error) != SQLITE_OK) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
}

/* SQLite answers with the mode in force, and ignores unknown names. */
static void set_mode(const char *mode) {
    char pragma[80];
    sqlite3_stmt *answer;
    snprintf(pragma, sizeof pragma, "PRAGMA journal_mode = %s", mode);
    check(sqlite3_prepare_v2(db, pragma, -1, &answer, NULL), pragma);
    check(sqlite3_step(answer), pragma);
    if (strcmp((const char *)sqlite3_column_text(answer, 0), mode)) {
        fprintf(stderr, "%s: the mode is %s\n", pragma, sqlite3_column_text(answer, 0));
        exit(1);
    }
    sqlite3_finalize(answer);
}

int main(int count, char **arguments) {
    if (count != 8) {
        fprintf(stderr, "instructions EXTENSION MODE DATABASE WARM-UP COMMITS OPERATION PAGE-SIZE\n");
        return 2;
    }
    char operation = arguments[6][0], page_size[64];
    int is_stock = !strcmp(arguments[1], "stock");
    int warm_up = atoi(arguments[4]), last = warm_up + atoi(arguments[5]);
    for (int word = 0; word < WORDS; word++)
        for (int letter = 0, letters = 2 + draw() % 8; letter < letters; letter++)
            words[word][letter] = 'a' + draw() % 26;
    if (!is_stock) load(arguments[1]);
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    check(sqlite3_open_v2(arguments[3], &db, flags, is_stock ? NULL : "onewrite"), "the database");
    snprintf(page_size, sizeof page_size, "PRAGMA page_size = %d", atoi(arguments[7]));
    check(sqlite3_exec(db, page_size, NULL, NULL, NULL), page_size);
    set_mode(arguments[2]);
    check(sqlite3_exec(db, SETTINGS, NULL, NULL, NULL), SETTINGS);
    if (operation == 'a') {
        check(sqlite3_exec(db, SCHEMA, NULL, NULL, NULL), "the schema");
        prepare(BEGIN, COMMIT);
    } else {
        rows();
    }
    for (int id = 1; id <= warm_up; id++) transaction(operation, id);
    long before = written();
    for (int id = warm_up + 1; id <= last; id++) transaction(operation, id);
    printf("%ld\n", written() - before);
    return 0;
}
