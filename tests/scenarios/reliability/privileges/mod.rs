//! What plugins must be permitted, what they say where it is not, and what they leave open to others.

mod capabilities;
mod descriptors;
mod locks;
mod modes;
mod user_namespace;
