//! Cycles of dependencies, named after what they are made of (Adya 1999, Elle 2020).
//!
//! | name | cycle |
//! | --- | --- |
//! | G0 | of `ww` |
//! | G1c | of `ww` and `wr`, with a `wr` |
//! | G-single | with one `rw` |
//! | G2-item | with several `rw` |
//!
//! With `-realtime` it has `rt` as well: the order is possible, but not in the order of time.

use std::collections::{HashMap, VecDeque};

use super::graph::{Edge, Graph, Kind, Kinds};
use super::report::Report;
use super::transaction::Transaction;

/// Limits the work on a history with very many cycles: edges from which one is searched.
const TRIED: usize = 2000;

const WW: Kinds = Kind::Ww as Kinds;
const WR: Kinds = Kind::Wr as Kinds;
const RW: Kinds = Kind::Rw as Kinds;
const RT: Kinds = Kind::Rt as Kinds;

/// A class of cycles: one edge of `first`, and a way back of `back`.
struct Class {
    name: &'static str,
    first: Kinds,
    back: Kinds,
}

/// Each class before those that contain it.
const CLASSES: [Class; 4] = [
    Class {
        name: "G0",
        first: WW,
        back: WW,
    },
    Class {
        name: "G1c",
        first: WR,
        back: WW | WR,
    },
    Class {
        name: "G-single",
        first: RW,
        back: WW | WR,
    },
    Class {
        name: "G2-item",
        first: RW,
        back: WW | WR | RW,
    },
];

/// Searches cycles of every class.
pub fn search(history: &[Transaction], graph: &Graph, report: &mut Report) {
    for (suffix, time) in [("", 0), ("-realtime", RT)] {
        for class in &CLASSES {
            let cycles = find(graph, class, time);
            let shortest = cycles.iter().min_by_key(|cycle| cycle.len());
            if let Some(cycle) = shortest {
                let name = format!("{}{suffix}", class.name);
                let lines = || cycle.iter().map(|edge| explain(history, edge)).collect();
                report.note_many(&name, cycles.len() as u64, lines);
            }
        }
    }
}

fn explain(history: &[Transaction], edge: &Edge) -> String {
    let (from, to) = (&history[edge.from], &history[edge.to]);
    match edge.kind {
        Kind::Rt => format!("{from} ended before the beginning of {to}"),
        Kind::Ww => format!("{from} appended to key {} before {to}", edge.key),
        Kind::Wr => format!("{from} wrote what {to} read of key {}", edge.key),
        Kind::Rw => format!("{from} read key {} before {to} appended to it", edge.key),
    }
}

fn find(graph: &Graph, class: &Class, time: Kinds) -> Vec<Vec<Edge>> {
    let back = class.back | time;
    let components = components(graph, class.first | back);
    let is_inside = |edge: &Edge| components[edge.from] == components[edge.to];
    let all = graph.0.iter().flatten();
    let mut cycles = Vec::new();
    let firsts = all.filter(|edge| edge.kind as Kinds & class.first != 0 && is_inside(edge));
    for first in firsts.take(TRIED) {
        if class.name == "G2-item" && way(graph, &components, first, WW | WR | time).is_some() {
            // One `rw` is enough: it is G-single.
            continue;
        }
        let Some(way) = way(graph, &components, first, back) else {
            continue;
        };
        let has_time = way.iter().any(|edge| edge.kind == Kind::Rt);
        if has_time == (time != 0) {
            cycles.push(std::iter::once(*first).chain(way).collect());
        }
    }
    cycles
}

/// The shortest way from the end of an edge back to its beginning.
fn way(graph: &Graph, components: &[usize], first: &Edge, kinds: Kinds) -> Option<Vec<Edge>> {
    let mut came: HashMap<usize, Edge> = HashMap::new();
    let mut queue = VecDeque::from([first.to]);
    while let Some(at) = queue.pop_front() {
        for edge in &graph.0[at] {
            let is_inside = components[edge.to] == components[first.from];
            let is_new = edge.to != first.to && !came.contains_key(&edge.to);
            if edge.kind as Kinds & kinds == 0 || !is_inside || !is_new {
                continue;
            }
            came.insert(edge.to, *edge);
            if edge.to == first.from {
                return Some(trace(&came, first));
            }
            queue.push_back(edge.to);
        }
    }
    None
}

fn trace(came: &HashMap<usize, Edge>, first: &Edge) -> Vec<Edge> {
    let mut way = Vec::new();
    let mut at = first.from;
    while at != first.to
        && let Some(edge) = came.get(&at)
    {
        way.push(*edge);
        at = edge.from;
    }
    way.reverse();
    way
}

/// Tarjan's strongly connected components, without recursion: the component of each node.
fn components(graph: &Graph, kinds: Kinds) -> Vec<usize> {
    let count = graph.0.len();
    let mut search = Search {
        graph,
        kinds,
        index: vec![usize::MAX; count],
        low: vec![0; count],
        is_on_stack: vec![false; count],
        stack: Vec::new(),
        component: vec![usize::MAX; count],
        next: 0,
    };
    for node in 0..count {
        if search.index[node] == usize::MAX {
            search.from(node);
        }
    }
    search.component
}

struct Search<'a> {
    graph: &'a Graph,
    kinds: Kinds,
    index: Vec<usize>,
    low: Vec<usize>,
    is_on_stack: Vec<bool>,
    stack: Vec<usize>,
    component: Vec<usize>,
    next: usize,
}

impl Search<'_> {
    fn enter(&mut self, node: usize) {
        self.index[node] = self.next;
        self.low[node] = self.next;
        self.next += 1;
        self.stack.push(node);
        self.is_on_stack[node] = true;
    }

    fn from(&mut self, root: usize) {
        self.enter(root);
        let mut path = vec![(root, 0)];
        while let Some((node, position)) = path.last_mut() {
            let node = *node;
            let Some(edge) = self.graph.0[node].get(*position) else {
                path.pop();
                self.leave(node);
                if let Some((parent, _)) = path.last() {
                    self.low[*parent] = self.low[*parent].min(self.low[node]);
                }
                continue;
            };
            *position += 1;
            if edge.kind as Kinds & self.kinds == 0 {
                continue;
            }
            if self.index[edge.to] == usize::MAX {
                self.enter(edge.to);
                path.push((edge.to, 0));
            } else if self.is_on_stack[edge.to] {
                self.low[node] = self.low[node].min(self.index[edge.to]);
            }
        }
    }

    /// A node whose search is over is the root of a component if nothing leads above it.
    fn leave(&mut self, node: usize) {
        if self.low[node] != self.index[node] {
            return;
        }
        while let Some(member) = self.stack.pop() {
            self.is_on_stack[member] = false;
            self.component[member] = node;
            if member == node {
                break;
            }
        }
    }
}
