//! [`Summary`]: what a blob says about itself, in the same words for every tool and language.

use serde::Serialize;

use super::{Header, Origin, VERSION, version};
use crate::day::Day;
use crate::digest::Digest;
use crate::filter::Filter;
use crate::id_form::IdForm;
use crate::key::{BlobKey, FilterName};

/// What a blob says about itself, for people and as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The filter.
    pub filter: FilterName,
    /// The day that it is of.
    pub day: Day,
    /// The digest of its bytes.
    pub digest: Digest,
    /// The version of its format.
    pub format: u16,
    /// How its bits are arranged.
    pub layout: &'static str,
    /// What is hashed of an ID; absent if that is its bytes.
    #[serde(skip_serializing_if = "is_bytes")]
    pub id: &'static str,
    /// Distinct IDs.
    pub ids: u64,
    /// Whether their number is estimated from the fill.
    pub ids_estimated: bool,
    /// The size of the blob.
    pub bytes: u64,
    /// The blocks or words of the filter.
    pub units: u64,
    /// The bits of the filter.
    pub bits: u64,
    /// The bits that are tested for an ID.
    pub probes: u32,
    /// The false-positive probability that it was sized for.
    pub fpp_target: f64,
    /// The one that was measured.
    pub fpp_measured: f64,
    /// How many of [`Summary::fpp_lookups`] were hits.
    pub fpp_hits: u64,
    /// How many IDs that are in no filter were looked up.
    pub fpp_lookups: u64,
    /// The share of bits that are set.
    pub fill: f64,
}

impl Summary {
    /// The summary of a blob that was opened.
    pub fn of(key: &BlobKey, header: &Header, filter: &Filter) -> Summary {
        let shape = header.shape;
        Summary {
            filter: header.filter.clone(),
            day: header.day,
            digest: key.digest,
            format: version(filter.memory()).unwrap_or(VERSION),
            layout: shape.layout().name(),
            id: header.id_form.name(),
            ids: header.ids,
            ids_estimated: header.origin == Origin::Imported,
            bytes: filter.memory().len() as u64,
            units: shape.units(),
            bits: shape.bits(),
            probes: shape.probes(),
            fpp_target: header.fpp_target,
            fpp_measured: header.fpp_measured(),
            fpp_hits: header.fpp_hits,
            fpp_lookups: header.fpp_lookups,
            fill: header.fill(),
        }
    }
}

fn is_bytes(form: &&str) -> bool {
    *form == IdForm::Bytes.name()
}
