//! What the writer knows beside the file: layouts, statements, the numbers of shapes, which operations were renamed.
//!
//! Not here: how a row is written ([`super::rows`]). Invariant: nothing that a transaction taught outlives its failure; a name that is
//! remembered for nothing costs a look and no more.

use std::collections::HashSet;
use std::sync::Arc;

use super::layout::Layout;
use super::shapes::Shapes;
use super::sql::Statements;

/// Renamed operations of this process that are remembered; beyond it every operation is looked for under both names.
const RENAMED_MAX: usize = 65_536;

/// What the writer knows beside the file.
#[derive(Debug)]
pub(super) struct Knowledge {
    pub operations: Layout,
    pub attempts: Layout,
    pub statements: Statements,
    pub operation_shapes: Shapes,
    pub attempt_shapes: Shapes,
    pub names: Names,
}

impl Knowledge {
    pub(super) fn new() -> Knowledge {
        let (operations, attempts) = (Layout::operations(), Layout::attempts());
        Knowledge {
            statements: Statements::new(&operations, &attempts),
            operation_shapes: Shapes::new(&operations),
            attempt_shapes: Shapes::new(&attempts),
            operations,
            attempts,
            names: Names::default(),
        }
    }

    /// A transaction failed: what was learned in it is not so.
    pub(super) fn forget(&mut self) {
        self.operation_shapes.forget();
        self.attempt_shapes.forget();
    }
}

/// Which operations may have been renamed. Whoever had an id first may have been pruned since, so its row does not tell.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// This process. Of others nothing is known.
    own: Option<Arc<str>>,
    /// Its operations that were renamed. Too many are no harm.
    renamed: HashSet<i64>,
}

impl Names {
    /// This is the process now, and those are its renamed operations.
    pub(super) fn begin(&mut self, own: &Arc<str>, renamed: Vec<i64>) {
        if self.own.as_ref() != Some(own) {
            self.renamed.clear();
        }
        self.own = Some(Arc::clone(own));
        self.renamed.extend(renamed);
    }

    /// Whether a row of this operation may lie under its other name.
    pub(super) fn may_be_renamed(&self, boot_id: &str, sequence: i64) -> bool {
        self.own.as_deref() != Some(boot_id)
            || self.renamed.len() >= RENAMED_MAX
            || self.renamed.contains(&sequence)
    }

    /// This operation of the process is renamed.
    pub(super) fn note(&mut self, sequence: i64) {
        if self.renamed.len() < RENAMED_MAX {
            self.renamed.insert(sequence);
        }
    }
}
