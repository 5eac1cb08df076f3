//! Values that a layer keeps with an object of a lower layer. The lower layer does not know their types.

use std::any::{Any, TypeId};
use std::sync::OnceLock;

/// The most types that an object can have values of.
const PLACES: usize = 4;

/// One value of each type, made at its first use. A look-up is a few loads and takes no lock.
#[derive(Default)]
pub(crate) struct Extensions([OnceLock<Extension>; PLACES]);

struct Extension {
    /// Of the value. Here a look-up reads it without a call.
    of: TypeId,
    value: Box<dyn Any + Send + Sync>,
}

impl Extensions {
    /// The value of type `T`.
    ///
    /// # Panics
    /// When there are too many types, which is a defect of this package.
    #[inline]
    pub(crate) fn get<T: Any + Send + Sync>(&self, make: impl Fn() -> T) -> &T {
        let of = TypeId::of::<T>();
        // Another thread may take a place meanwhile, for a value of this type or another.
        let mut extensions =
            self.0.iter().map(|place| place.get_or_init(|| Extension { of, value: Box::new(make()) }));
        let found = extensions.find(|extension| extension.of == of);
        let Some(value) = found.and_then(|extension| extension.value.downcast_ref()) else {
            unreachable!("an object has values of more than {PLACES} types")
        };
        value
    }

    /// Drops all values.
    pub(crate) fn clear(&mut self) {
        self.0.iter_mut().for_each(|place| drop(place.take()));
    }
}

#[cfg(test)]
mod tests {
    use super::Extensions;

    #[test]
    fn a_type_has_one_value() {
        let mut extensions = Extensions::default();
        assert_eq!(*extensions.get(|| 1u32), 1);
        assert_eq!(*extensions.get(|| "a"), "a");
        assert_eq!(*extensions.get(|| 2u32), 1);
        extensions.clear();
        assert_eq!(*extensions.get(|| 2u32), 2);
    }
}
