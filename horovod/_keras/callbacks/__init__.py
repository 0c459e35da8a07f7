"""The callbacks without their base class, which is that of the user's Keras."""
