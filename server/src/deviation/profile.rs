//! Vendor profiles: named sets of deviations, each with where it is known from.

use serde::Deserialize;

use super::{Deviation, DeviationError};

macro_rules! profiles {
    ($($name:literal)+) => {
        /// Names and texts of the files.
        const FILES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../profiles/", $name, ".toml"))),)+];
    };
}

profiles! {
    "aws" "minio" "minio-2025-08" "rustfs" "ceph-rgw" "ceph-rgw-2024" "garage" "seaweedfs" "seaweedfs-4.16"
    "versitygw" "s3proxy" "s3s-fs" "rclone-serve" "moto" "ministack" "localstack" "file-store" "r2" "gcs-xml"
    "b2" "alibaba-oss" "coreweave" "selectel" "ozone" "digitalocean-spaces" "ovhcloud"
}

/// A vendor or server as it was on a day, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The name to select it by.
    pub name: &'static str,
    /// Which product and version.
    pub about: String,
    /// How it differs from AWS.
    pub entries: Vec<ProfileEntry>,
    /// What nobody has found out, or what this server cannot show.
    pub unknown: Vec<String>,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileEntry {
    /// What it is.
    pub deviation: Deviation,
    /// Where it is known from.
    pub source: String,
    /// As of when: a year, with month and day as far as they are known.
    pub date: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    about: String,
    #[serde(default)]
    unknown: Vec<String>,
    #[serde(default, rename = "deviation")]
    deviations: Vec<FileEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileEntry {
    name: String,
    source: String,
    date: String,
}

impl Profile {
    /// The names of all profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FILES.iter().map(|(name, _)| *name)
    }

    /// The profile of that name.
    ///
    /// # Errors
    /// A name that no profile has.
    pub fn named(name: &str) -> Result<Self, DeviationError> {
        let failed = |why: String| DeviationError { text: name.to_owned(), why };
        let (name, text) = FILES.iter().find(|(own, _)| *own == name).ok_or_else(|| {
            failed(format!("profiles are {}", Self::names().collect::<Vec<_>>().join(", ")))
        })?;
        let file: File = toml::from_str(text).map_err(|error| failed(error.to_string()))?;
        let entries = file.deviations.into_iter().map(|entry| {
            Ok(ProfileEntry { deviation: entry.name.parse()?, source: entry.source, date: entry.date })
        });
        Ok(Self {
            name,
            about: file.about,
            entries: entries.collect::<Result<_, _>>()?,
            unknown: file.unknown,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_can_be_read_and_says_where_it_is_from() {
        for name in Profile::names() {
            let profile = Profile::named(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(profile.entries.is_empty(), name == "aws", "{name}");
            for entry in &profile.entries {
                assert!(!entry.source.is_empty(), "{name}: {}", entry.deviation);
                assert!(entry.date.starts_with("20"), "{name}: {} {}", entry.deviation, entry.date);
            }
        }
        let none = Profile::named("s4").unwrap_err();
        assert!(none.why.contains("minio, "), "{none}");
    }
}
