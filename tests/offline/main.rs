//! What needs no launcher: programs, files, figures, parsers and the rules of the sources.

#[path = "../common/blocks.rs"]
mod blocks;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/doctor_document.rs"]
mod doctor_document;
#[path = "../common/documented_run.rs"]
mod documented_run;
#[path = "../common/nccl_log.rs"]
mod nccl_log;
#[path = "../common/offline.rs"]
mod offline;
#[path = "../common/records.rs"]
mod records;

mod browser;
mod calibrate_command;
mod calibrate_figures;
mod circles;
mod cost;
mod cost_aside;
mod cost_figures;
mod cost_labels;
mod cost_recovery;
mod doctor;
mod documented;
mod embedded;
mod expect;
mod export;
mod faults;
mod fixtures;
mod foreign_logs;
mod frameworks;
mod gate;
mod gpu_bundle;
mod gpu_layer;
mod history;
mod hostile;
mod import;
mod job_scripts;
mod kubernetes;
mod launchers;
mod layers;
mod layout;
mod licences;
mod links;
mod little_memory;
mod locate;
mod mistakes;
mod model;
mod monitoring;
mod outputs;
mod parsers;
mod plan;
mod power_cuts;
mod qualified;
mod qualify;
mod rank;
mod resume;
mod second_tries;
mod selftest;
mod setup;
mod shown;
mod signatures;
mod store;
mod trace;
mod trace_of_gpus;
mod validate;
mod words;
mod worse;
