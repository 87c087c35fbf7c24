//! The splitter with small amalgamations, valid and invalid.

use super::*;

/// An amalgamation with every function that the plan knows, and no more.
fn whole() -> String {
    let mut text = String::new();
    let mut file = |name: &str, body: &str| {
        text += &format!(
            "/************** Begin file {name} ****/\n{body}/************** End of {name} *****/\n"
        );
    };
    let mut header = String::from("#ifndef SQLITE_BTREE_H\n#define SQLITE_BTREE_H\n");
    let mut bodies = String::new();
    for (role, names) in plan::ROLES {
        for name in *names {
            let object = if *role == Role::Cursor {
                "BtCursor*"
            } else {
                "Btree *p"
            };
            header += &format!(
                "SQLITE_PRIVATE int {name}({object}, /* why; */ u32 n,\n    const void*);\n"
            );
            bodies +=
                &format!("SQLITE_PRIVATE int {name}(\n  Btree *p, u32 n\n){{\n  return 1;\n}}\n");
        }
    }
    header += "SQLITE_PRIVATE int sqlite3BtreeCopyFile(Btree*, Btree*);\n#endif\n";
    file("btree.h", &header);
    for guarded in GUARDED {
        let declared: String = guarded
            .functions
            .iter()
            .map(|name| declaration(name))
            .collect();
        file(
            &format!("{}.h", guarded.first),
            &declared.replace("SQLITE_PRIVATE int sqlite3BtreeCopyFile(int);\n", ""),
        );
    }
    for guarded in GUARDED {
        let defined: String = guarded
            .functions
            .iter()
            .map(|name| declaration(name).replace(';', "{}"))
            .collect();
        if guarded.last == "btree.c" {
            file(guarded.first, &defined);
            file(guarded.last, &bodies);
        } else {
            file(guarded.first, &defined);
        }
    }
    text + "/* Return the source-id for this library */\n"
}

fn declaration(name: &str) -> String {
    format!("SQLITE_PRIVATE int {name}(int);\n")
}

#[test]
fn only_lines_are_added() {
    let text = whole();
    let split = split(&text).expect("a whole amalgamation");
    let mut rest = split.lines();
    for line in text.lines() {
        assert!(rest.any(|other| other == line), "lost or moved: {line}");
    }
}

#[test]
fn both_engines_functions_are_renamed_in_the_stock_engine_and_nowhere_else() {
    let split = split(&whole()).expect("a whole amalgamation");
    let at = |text: &str| {
        split
            .find(text)
            .unwrap_or_else(|| panic!("not there: {text}"))
    };
    let renamed = at("#define sqlite3BtreeNext stock_sqlite3BtreeNext\n");
    assert!(renamed < at("Begin file btree.c"));
    assert!(at("End of btree.c") < at("#undef sqlite3BtreeNext\n"));
    assert!(at("#undef sqlite3BtreeNext\n") < at("#include \"glue.c\""));
    assert!(
        at("#undef sqlite3PagerGet\n") < at("#include \"glue.c\""),
        "the glue defines the guard of that name"
    );
    assert!(at("#include \"glue.c\"") < at("SQLITE_PRIVATE int sqlite3BtreeNext(BtCursor* a0"));
    assert!(
        !split.contains("#define sqlite3BtreeEof "),
        "the stock function serves both"
    );
}

#[test]
fn a_call_goes_to_the_engine_of_its_handle_or_cursor() {
    let split = split(&whole()).expect("a whole amalgamation");
    assert!(split.contains(
        "SQLITE_PRIVATE int sqlite3BtreeNext(BtCursor* a0, u32 a1, const void* a2){ \
         return glueOwnsCursor(a0) ? glueNext(a0, a1, a2) : stock_sqlite3BtreeNext(a0, a1, a2); }"
    ));
    assert!(split.contains(
        "return glueOwns(a0) ? glueCommit(a0, a1, a2) : stock_sqlite3BtreeCommit(a0, a1, a2);"
    ));
}

#[test]
fn a_missing_marker_is_an_error() {
    let text = whole().replace("Begin file vacuum.c ", "begin file vacuum.c ");
    let error = split(&text).expect_err("no marker");
    assert_eq!(
        error,
        Error::Lines {
            what: "the marker \"Begin file vacuum.c\"".to_owned(),
            found: vec![]
        }
    );
}

#[test]
fn a_repeated_marker_is_an_error() {
    let text = whole() + "/******** End of btree.c ********/\n";
    assert!(matches!(split(&text), Err(Error::Lines { found, .. }) if found.len() == 2));
}

#[test]
fn a_repeated_anchor_is_an_error() {
    let text = whole() + "/* Return the source-id for this library */\n";
    assert!(matches!(split(&text), Err(Error::Lines { found, .. }) if found.len() == 2));
}

#[test]
fn a_function_that_the_plan_does_not_know_is_an_error() {
    let text = whole().replace(
        "SQLITE_PRIVATE int sqlite3BtreeCopyFile(Btree*",
        "SQLITE_PRIVATE int sqlite3BtreeNew(Btree*",
    );
    assert_eq!(
        split(&text),
        Err(Error::Unplanned("sqlite3BtreeNew".to_owned()))
    );
}

#[test]
fn a_planned_function_that_is_not_declared_is_an_error() {
    let text = whole().replace("sqlite3BtreeNext(", "sqlite3PlainNext(");
    assert!(split(&text).is_err());
    let text = whole().replacen(
        "SQLITE_PRIVATE int sqlite3BtreeLast(",
        "int sqlite3BtreeLast(",
        1,
    );
    assert_eq!(
        split(&text),
        Err(Error::Declarations {
            name: "sqlite3BtreeLast".to_owned(),
            found: 0
        })
    );
}

#[test]
fn a_planned_function_that_is_not_defined_where_it_should_be_is_an_error() {
    let text = whole().replace("SQLITE_PRIVATE int sqlite3PagerGet(int){}", "");
    assert!(
        matches!(split(&text), Err(Error::Definitions { name, found: 0, .. }) if name == "sqlite3PagerGet")
    );
    let text = whole().replace(
        "SQLITE_PRIVATE int sqlite3BtreeNext(\n  Btree",
        "int sqlite3BtreeNext(\n  Btree",
    );
    assert!(
        matches!(split(&text), Err(Error::Definitions { name, found: 0, .. }) if name == "sqlite3BtreeNext")
    );
}

#[test]
fn two_declarations_that_differ_are_an_error() {
    let text = whole().replace(
        "SQLITE_PRIVATE int sqlite3BtreeCopyFile",
        "SQLITE_PRIVATE long sqlite3BtreeNext(BtCursor*);\nSQLITE_PRIVATE int sqlite3BtreeCopyFile",
    );
    assert_eq!(
        split(&text),
        Err(Error::Declarations {
            name: "sqlite3BtreeNext".to_owned(),
            found: 2
        })
    );
}

#[test]
fn a_declaration_keeps_the_conditions_that_it_stands_in() {
    let lines = [
        "#ifndef SQLITE_BTREE_H",
        "#if A > 0",
        " # ifdef B",
        "SQLITE_PRIVATE   struct Pager *sqlite3BtreePager(Btree*);",
        " #endif",
        "#else",
        "# define sqlite3BtreePager(X) 0",
        "#endif",
        "SQLITE_PRIVATE void sqlite3BtreeGetMeta(Btree *pBtree, int idx, u32 *pValue);",
    ];
    let found = prototype::parse(&lines).expect("declarations");
    assert_eq!(found[0].conditions, ["#if A > 0", "# ifdef B"]);
    assert_eq!(found[0].returns, "struct Pager *");
    assert!(found[1].conditions.is_empty());
    let typed: Vec<_> = ["Btree *", "int", "u32 *"]
        .map(|text| prototype::Parameter::Typed(text.to_owned()))
        .into();
    assert_eq!(found[1].parameters, typed);
}
