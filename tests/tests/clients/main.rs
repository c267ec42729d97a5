//! The packages in other languages, with real files of the program.

mod c;
mod go;
mod java;
mod python;
mod scrapy;
